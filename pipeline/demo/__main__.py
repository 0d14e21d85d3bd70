"""Run the demo of the pipeline."""

from pipeline.demo.show import main

if __name__ == "__main__":
    raise SystemExit(main())
