"""The policies of hosts, the drift from them, and the room that they leave."""
