"""What every request passes first: keys, hosts, connection and body limits."""
