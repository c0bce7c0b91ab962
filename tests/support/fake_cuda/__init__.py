"""Acts as if there were a GPU: FakeTensors on "cuda:0", in a separate process with a device guard preloaded."""
