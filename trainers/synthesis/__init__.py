"""The work of `trainers.synthesize`: its plan, its filters, its steps."""
