"""Tables as values: what a report and a terminal both show."""
