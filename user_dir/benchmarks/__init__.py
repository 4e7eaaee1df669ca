"""Speed, memory and accuracy, measured side by side with the peers; nothing of the plugin needs it."""
