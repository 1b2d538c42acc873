"""Bad requests by the hundred thousand: how they are drawn, how they are sent, and what is a defect of an answer."""
