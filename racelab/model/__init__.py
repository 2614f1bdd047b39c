"""The model: an executable specification of the ledger, TLC on its TLA+ text, and validation of recorded runs."""
