"""What a turn says, on its way to the client: remembered, stamped, steered, counted, reported."""
