package model

import "time"

// Bandwidth is in bit/s; written "10Mbit", "1.5Gbit" (10³ steps), never in bytes.
type Bandwidth uint64

// Bytes is a size; written "512MiB", "2GiB" (2¹⁰ steps).
type Bytes uint64

// CPU is in thousandths of a core; written in cores: 0.5, 2.
type CPU uint32

// Duration is a time span; written "10ms", "1.5s".
type Duration time.Duration
