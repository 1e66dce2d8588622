"""A report in the form in which a lab is handed in, with what its author wrote."""
