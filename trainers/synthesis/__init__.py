"""Implements `kt-synthesize`: plans, filters and steps."""
