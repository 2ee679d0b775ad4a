"""What strangers, pods and users without rights get: nothing.  Each file is one way in."""
