// SPDX-License-Identifier: Apache-2.0
// Templates, virtual calls, a lambda, and exceptions thrown through three frames and caught, in a loop.
// usage: cxx SECONDS calls|throw
#include "wl.h"

#include <stdexcept>
#include <vector>

#define KEEP __attribute__((noipa))

namespace shop
{

struct Square {
};
struct Cube {
};

class Machine
{
      public:
	virtual ~Machine() = default;
	virtual double run(int n) = 0;
};

KEEP double leaf(double x)
{
	for (;;)
		wl_sink = wl_sink + static_cast<uint64_t>(x);
	return x;
}

template <typename T, typename Op> KEEP T fold(const std::vector<T> &v, Op)
{
	T out = leaf(v[0]);
	AFTER_CALL();
	return out + v[1];
}

template <typename T, int N> class Engine : public Machine
{
      public:
	KEEP double run(int n) override
	{
		std::vector<T> v(N, T(n));
		auto lambda = [&v](int k) KEEP -> double {
			double out = fold<T, Cube>(v, Cube{});
			AFTER_CALL();
			return out + k;
		};
		double out = lambda(n);
		AFTER_CALL();
		return out;
	}
};

KEEP double drive(Machine &m, int n)
{
	double out = m.run(n);
	AFTER_CALL();
	return out;
}

struct Guard {
	KEEP ~Guard()
	{
		wl_sink = wl_sink + 1;
	}
};

KEEP void thrower(int n)
{
	WL_SPIN(20000);
	if (n >= 0)
		throw std::runtime_error("on purpose");
}

KEEP void passer(int n)
{
	Guard guard;
	thrower(n);
	AFTER_CALL();
}

template <typename E> KEEP void catcher(int n)
{
	try {
		passer(n);
		AFTER_CALL();
	} catch (const E &) {
		WL_SPIN(20000);
	}
}

} // namespace shop

int main(int argc, char **argv)
{
	wl_deadline(argc, argv);
	if (argc > 2 && strcmp(argv[2], "throw") == 0) {
		wl_describe("throw",
			    "{\"frames\":[\"?cxx:shop::thrower(int)\",\"cxx:shop::passer(int)\","
			    "\"cxx:void shop::catcher<std::runtime_error>(int)\"," WL_ROOT "],\"min_share\":0.01},"
			    "{\"frames\":[\"?cxx:shop::Guard::~Guard()\",\"cxx:shop::passer(int)\","
			    "\"cxx:void shop::catcher<std::runtime_error>(int)\"," WL_ROOT "]},"
			    "{\"frames\":[\"?cxx:void shop::catcher<std::runtime_error>(int)\"," WL_ROOT
			    "],\"min_share\":0.01},"
			    // The unwinder at work, below the frame that threw or is cleaned up. It takes a fiftieth
			    // of the time; a bound near that is missed by chance.
			    "{\"frames\":[\"?plt\",\"+lib:libstdc++.so.6,libgcc_s.so.1,libc.so.6,libm.so.6,ld-linux-x86-64.so.2\","
			    "\"?plt\",\"?cxx:shop::thrower(int)\",\"?cxx:shop::passer(int)\","
			    "\"cxx:void shop::catcher<std::runtime_error>(int)\"," WL_ROOT "],\"min_share\":0.004},"
			    "{\"frames\":[\"plt\",\"*lib:libstdc++.so.6,libgcc_s.so.1\",\"?cxx:shop::thrower(int)\",\"?cxx:shop::passer(int)\","
			    "\"cxx:void shop::catcher<std::runtime_error>(int)\"," WL_ROOT "]}");
		for (int i = 0;; i = (i + 1) & 0xffff)
			shop::catcher<std::runtime_error>(i);
	}
	wl_describe("calls",
		    "{\"frames\":[\"cxx:shop::leaf(double)\","
		    "\"cxx:double shop::fold<double, shop::Cube>(std::vector<double, std::allocator<double> > const&, shop::Cube)\","
		    "\"/shop::Engine<double, 7>::run\\\\(int\\\\)::\\\\{lambda\\\\(int\\\\)#1\\\\}::operator\\\\(\\\\)\\\\(int\\\\) const/\","
		    "\"cxx:shop::Engine<double, 7>::run(int)\",\"cxx:shop::drive(shop::Machine&, int)\"," WL_ROOT "]}");
	shop::Engine<double, 7> engine;
	double out = shop::drive(engine, argc);
	AFTER_CALL();
	return out > 0;
}
