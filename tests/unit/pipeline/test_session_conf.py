from pipeline.running.session import _chosen


def test_what_spark_submit_was_told_goes_before_our_defaults_and_conf_before_both() -> None:
    usual = {"spark.a": "ours", "spark.b": "ours", "spark.c": "ours"}
    found = _chosen(usual, {"spark.a": "submitted", "spark.b": "submitted"}, {"spark.b": "conf"})
    # Not naming a setting leaves that of spark-submit in force.
    assert found == {"spark.b": "conf", "spark.c": "ours", "spark.sql.session.timeZone": "UTC"}


def test_the_time_zone_is_not_to_be_chosen() -> None:
    zone = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    assert _chosen({}, zone, zone)["spark.sql.session.timeZone"] == "UTC"
