"""`turnwire bench`: measurements of the user's own gateway and engine."""
