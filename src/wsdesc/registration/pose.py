"""Methods of results that have a pose: its parts in other forms, and moving scans by it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.apply import apply_pose
from wsdesc.cloud.convert import Scan
from wsdesc.core.errors import InputError
from wsdesc.core.similarity import factor_of

Pose = NDArray[np.float64]  # (4, 4)


class PoseMethods:
    """Methods of an object with the pose `T_target_source` (4, 4)."""

    T_target_source: Pose

    @property
    def factor(self) -> float:
        """Factor by which the pose multiplies lengths: 1 for a rigid pose."""
        return factor_of(self.T_target_source)

    @property
    def rotation(self) -> NDArray[np.float64]:
        """Rotation matrix (3, 3), from directions in the source to directions in the target."""
        return self.T_target_source[:3, :3] / self.factor

    @property
    def translation(self) -> NDArray[np.float64]:
        """Translation (3,), in the target's unit: where the source's origin is in the target."""
        return self.T_target_source[:3, 3].copy()

    @property
    def quaternion(self) -> NDArray[np.float64]:
        """Unit quaternion (x, y, z, w) of the rotation, w ≥ 0: the order of SciPy, ROS and Eigen."""
        from scipy.spatial.transform import Rotation  # seldom needed, and slow to import

        return np.asarray(Rotation.from_matrix(self.rotation).as_quat(canonical=True))

    @property
    def quaternion_wxyz(self) -> NDArray[np.float64]:
        """Unit quaternion (w, x, y, z) of the rotation, w ≥ 0: the order of Open3D, trimesh and COLMAP."""
        return np.roll(self.quaternion, 1)

    def euler(self, order: str = "xyz", *, degrees: bool = True) -> NDArray[np.float64]:
        """Return three angles of the rotation, as in SciPy.

        Args:
            order: Axes of the rotations. Lower-case letters rotate about the fixed axes of the target, in
                this order: "xyz" gives roll, pitch and yaw of ROS. Upper-case letters rotate about the axes
                that move with the source.
            degrees: Degrees instead of radians.

        Raises:
            InputError: The order is not three axes in lower or in upper case, as "xyz" or "ZYX".
        """
        from scipy.spatial.transform import Rotation

        try:
            return np.asarray(Rotation.from_matrix(self.rotation).as_euler(order, degrees=degrees))
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f'order must be three axes, such as "xyz" or "ZYX", not {order!r}') from error

    def apply(self, scan: Scan) -> Any:
        """Move a scan from the source's frame into the target's frame.

        Args:
            scan: The source, or anything else in its coordinates: points (N, 3), one point (3,), or another
                form that `as_cloud` takes.

        Returns:
            A moved copy. Arrays, tensors, `Cloud`s and objects of Open3D, trimesh and PyVista keep their
            kind, type and further columns. Files, tables, laspy data and messages become a `Cloud`.

        Raises:
            InputError: The object is not a scan.
            FileFormatError: The file cannot be read.
        """
        return apply_pose(scan, self.T_target_source)
