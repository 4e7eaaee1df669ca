"""Experiments: several trainings defined in a YAML file, each evaluated, with a table of the results."""
