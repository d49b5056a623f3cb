from benchmark_scenes import exact_method, make_scene_root, scene_root  # noqa: F401
