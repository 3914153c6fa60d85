// SPDX-License-Identifier: Apache-2.0
// Does chains of calls whose frames dotnet_stacks.py knows, each for a tenth of a second, one after the other; those that
// are named, or all. Says "ready" when all have been done once.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Reflection.Emit;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;
using System.Threading.Tasks;

// Where the program is another one, which has this loaded before it begins.
public class StartupHook {
	public static void Initialize() { Shop.Work.Main(new string[0]); }
}

namespace Shop {
	public interface IPrice {
		long Of(int n);
	}

	public class Plain : IPrice {
		[MethodImpl(MethodImplOptions.NoInlining)]
		public long Of(int n) { return Work.Spin(n) + 1; }
	}

	public class Reduced : IPrice {
		[MethodImpl(MethodImplOptions.NoInlining)]
		public long Of(int n) { return Work.Spin(n) + 2; }
	}

	public struct Pair {
		public int A, B;
	}

	public class Box<T> {
		public T Value;

		[MethodImpl(MethodImplOptions.NoInlining)]
		public long Put(T value, int n) { Value = value; return Work.Spin(n) + 1; }

		public class Lid {
			[MethodImpl(MethodImplOptions.NoInlining)]
			public long Close<U>(U u, int n) { return Work.Spin(n) + (u == null ? 1 : 2); }
		}
	}

	public static class Work {
		const int Round = 20000;
		static long sink;

		// A leaf with a loop, and one that is over at once.
		[MethodImpl(MethodImplOptions.NoInlining)]
		public static long Spin(int n) {
			long s = n;
			for (int i = 0; i < n; i++)
				s = s * 31 + (i ^ s);
			return s;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static int Tiny(int n) { return n * 3 + 1; }

		// Has one call and may do without a frame pointer.
		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Once(int n) { return Spin(n) * 3 + 1; }

		[MethodImpl(MethodImplOptions.NoInlining)]
		static int OnceTiny(int n) { return Tiny(n) + 1; }

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Small(int n) {
			long s = 0;
			for (int i = 0; i < n / 4; i++)
				s += OnceTiny(i);
			return s;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Recurse(int depth, int n) { return depth == 0 ? Once(n) + 1 : Recurse(depth - 1, n) + 1; }

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Generic(int n) {
			return new Box<string>().Put("a", n) + new Box<int>().Put(1, n) + new Box<Pair>().Put(new Pair(), n) +
			       new Box<string>.Lid().Close("a", n) + new Box<int>.Lid().Close(1L, n);
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Lambda(int n) {
			Func<int, long> f = x => Spin(x) + n;
			Func<int, long> g = x => Spin(x) + 1;
			return f(n) + g(n);
		}

		static IEnumerable<long> Each(int n) {
			for (int i = 0; i < 4; i++)
				yield return Spin(n) + i;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Iterator(int n) {
			long s = 0;
			foreach (long v in Each(n))
				s += v;
			return s;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Price(IPrice p, int n) { return p.Of(n) + 1; }

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Interface(int n) {
			long s = 0;
			for (int i = 0; i < 40; i++)
				s += Price(i % 2 == 0 ? (IPrice)new Plain() : new Reduced(), n / 20);
			return s;
		}

		static void First(int n) { sink += Spin(n); }
		static void Second(int n) { sink += Spin(n); }

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Multicast(int n) {
			Action<int> all = First;
			all += Second;
			all(n);
			return 1;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static void Throw(int depth) {
			if (depth == 0)
				throw new InvalidOperationException("of use");
			Throw(depth - 1);
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Catch(int n) {
			try {
				Throw(3);
			} catch (InvalidOperationException) {
				return Once(n * 4) + 1;
			}
			return 0;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Finally(int n) {
			long s = 0;
			try {
				try {
					Throw(1);
				} finally {
					s += Once(n * 4);
				}
			} catch (InvalidOperationException) {
				s++;
			}
			return s;
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static unsafe long Stack(int n) {
			byte* p = stackalloc byte[n / 8 + 64];
			p[n / 8] = 1;
			return Once(n) + p[n / 8];
		}

		unsafe struct Large {
			public fixed byte Bytes[9000];
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static unsafe long Fill(Large* l) { l->Bytes[n0] = 3; return Spin(Round); }
		static int n0 = 5;

		[MethodImpl(MethodImplOptions.NoInlining)]
		static unsafe long LargeFrame(int n) {
			Large l;
			return Fill(&l) + l.Bytes[n % 9000];
		}

		unsafe delegate int Comparison(int* a, int* b);

		[DllImport("libc", EntryPoint = "qsort")]
		static extern unsafe void Sort(int* v, IntPtr n, IntPtr size, Comparison compare);

		[MethodImpl(MethodImplOptions.NoInlining)]
		static unsafe int Compare(int* a, int* b) { sink += Spin(4000); return *a < *b ? -1 : *a > *b ? 1 : 0; }

		static readonly unsafe Comparison compare = Compare;

		[MethodImpl(MethodImplOptions.NoInlining)]
		static unsafe long Native(int n) {
			int* v = stackalloc int[16];
			for (int i = 0; i < 16; i++)
				v[i] = i * 7919 % 16;
			Sort(v, (IntPtr)16, (IntPtr)4, compare);
			return v[0];
		}

		static int ByPrice(int a, int b) { sink += Spin(400); return (a * 7919 % 1000).CompareTo(b * 7919 % 1000); }

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Library(int n) {
			var l = new List<int>();
			for (int i = 0; i < 100; i++)
				l.Add(i);
			l.Sort(ByPrice);
			return l[0];
		}

		static Func<int, long> made;
		static int made_again;

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Dynamic(int n) {
			if (made == null || made_again++ % 8 == 0) {
				var m = new DynamicMethod("Made", typeof(long), new[] {typeof(int)}, typeof(Work).Module, true);
				var il = m.GetILGenerator();
				il.Emit(OpCodes.Ldarg_0);
				il.Emit(OpCodes.Call, typeof(Work).GetMethod("Spin"));
				il.Emit(OpCodes.Ldc_I8, 1L);
				il.Emit(OpCodes.Add);
				il.Emit(OpCodes.Ret);
				made = (Func<int, long>)m.CreateDelegate(typeof(Func<int, long>));
			}
			long s = 0;
			for (int i = 0; i < 50; i++)
				s += made(n);
			return s;
		}

		static async Task<long> TotalAsync(int n) {
			await Task.Yield();
			long s = Once(n * 4);
			await Task.Delay(1);
			return s + Once(n * 4);
		}

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Async(int n) { return TotalAsync(n).Result + 1; }

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Alloc(int n) {
			long s = 0;
			for (int i = 0; i < n / 100; i++) {
				var a = new object[20];
				a[i % 20] = a;
				s += a.Length;
			}
			return s + Spin(n);
		}

		static readonly Dictionary<string, Func<int, long>> chains = new Dictionary<string, Func<int, long>> {
			{"recursion", n => Recurse(20, n) + 1}, {"small", Small}, {"generic", Generic}, {"lambda", Lambda},
			{"iterator", Iterator}, {"interface", Interface}, {"multicast", Multicast}, {"catch", Catch},
			{"finally", Finally}, {"stackalloc", Stack}, {"large", LargeFrame}, {"native", Native},
			{"library", Library}, {"dynamic", Dynamic}, {"async", Async}, {"alloc", Alloc},
		};

		[MethodImpl(MethodImplOptions.NoInlining)]
		static long Do(Func<int, long> chain) { return chain(Round) + 1; }

		[MethodImpl(MethodImplOptions.NoInlining)]
		static void For(Func<int, long> chain, int ms) {
			var end = Environment.TickCount + ms;
			while (Environment.TickCount < end)
				sink += Do(chain);
		}

		public static void Main(string[] names) {
			var all = names.Length > 0 ? names.Select(n => chains[n]).ToArray() : chains.Values.ToArray();
			foreach (var chain in all)
				For(chain, 20);
			Console.WriteLine("{\"pid\": " + System.Diagnostics.Process.GetCurrentProcess().Id + "}");
			for (;;)
				foreach (var chain in all)
					For(chain, 100);
		}
	}
}
