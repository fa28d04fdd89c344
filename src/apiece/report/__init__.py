"""From run folders to tables and pages."""
