"""The peers: each a module that runs the same federated task with one library and prints one JSON object."""
