from tests.support.proxy_under_test import staged, namespace, TIGHT, jammed, queued_for_heap
async def test_x() -> None:
    async with staged() as stage:
        c = await stage.connected()
        assert len((await c.topics(namespace(1))).topics) == 7000
async def test_jam() -> None:
    async with staged(**TIGHT) as stage:
        jam = await jammed(stage)
        e = await queued_for_heap(stage)
        print(stage.books())
