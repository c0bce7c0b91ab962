"""`aiayn watch`: a running workflow seen from another terminal, or from a browser on the same machine."""
