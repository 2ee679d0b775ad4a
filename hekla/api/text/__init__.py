"""What names, quantities, selectors and other texts of the wire may look like."""
