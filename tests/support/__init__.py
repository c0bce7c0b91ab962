"""What the tests share: tiny models, texts and stages, servers, and processes to be interrupted."""
