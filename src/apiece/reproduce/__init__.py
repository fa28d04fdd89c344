"""Tables and figures of papers, each by one command: `apiece reproduce fedals-table2`."""
