"""The executable specification: states, actions and invariants of `scenarios/models/PdLedger.tla` in Python.

It shares no code with the engine, whose histories it is there to judge.
"""
