"""What is asked and what is said: turns, requests in the three APIs, and the clients that send them."""
