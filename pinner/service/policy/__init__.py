"""The policies of hosts, what differs from them now, and the room that they leave."""
