"""What a run leaves behind: record, events, output, metrics, processes, report. Imports nothing heavy.

Empty on purpose: ``harness.evidence.events`` is imported in every Ray worker at its start.
"""
