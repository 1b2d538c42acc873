"""`turnwire chat`: a streaming agent in the terminal."""
