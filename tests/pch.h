// Precompiled for the C++ tests, which may use all of ATen.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>
