"""One file an inference engine, all behind the protocol in base.py."""
