"""Experiments: many trainings from one YAML file, each evaluated, in a table at the end."""
