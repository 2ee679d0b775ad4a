"""What the descheduler costs."""
