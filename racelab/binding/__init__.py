"""Bindings: from the actions of somebody's model to schedule steps. docs/bindings.md says how to write one."""
