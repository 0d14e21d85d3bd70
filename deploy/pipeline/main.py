"""What spark-submit runs: `spark-submit [options] main.py JOB ...` is `pulsar-proxy-pipeline JOB ...`."""

from pipeline.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
