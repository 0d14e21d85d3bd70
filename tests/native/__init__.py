"""Tests of the native extension through its Python interface; its own tests are in native/src."""
