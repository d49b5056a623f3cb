"""An object and a scene → poses of all instances of the object in the scene, with confidences."""
