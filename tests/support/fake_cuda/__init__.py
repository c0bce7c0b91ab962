"""Acts as if there were a GPU: FakeTensors on "cuda:0", in a process of its own with a device guard preloaded."""
