"""What the threads of a block do together: vectors, rows, tiles."""
