"""Every client a process of its own, spoken to in bytes."""
