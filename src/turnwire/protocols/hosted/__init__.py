"""Tools that the vendors run on their own servers, where a gateway runs them: offered, called, answered, sent back."""
