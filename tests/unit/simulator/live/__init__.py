"""The live system simulated forward."""
