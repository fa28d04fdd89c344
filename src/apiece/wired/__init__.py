"""Every client is a process of its own, and only messages in bytes reach it."""
