"""Speed, memory and accuracy compared with other implementations; no other package depends on this one."""
