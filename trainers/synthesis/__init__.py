"""The work of `kt-synthesize`: its plan, its filters, its steps."""
