def test_script_runs_to_the_end(engine, tmp_path):
    out = tmp_path / "out"
    tid = engine.submit(
        {"op": "say", "text": "hi"},
        {"op": "map", "count": 95, "fail": [3], "append": str(tmp_path / "items")},
        {"op": "effect", "key": "k", "append": str(out)},
        {"op": "write", "path": "a.txt", "text": "hello"},
        {"op": "sleep", "s": 60},
        {"op": "set", "values": {"x": 1}},
    )
    task = engine.drive(tid)
    assert task.status == "completed", task.error
    assert task.result == {"x": 1}
    assert len(out.read_text().splitlines()) == 1
    engine.assert_audit_verifies(tid)
